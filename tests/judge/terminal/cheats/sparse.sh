# makes its answer a terabyte of nothing
truncate -s 1T out.txt
