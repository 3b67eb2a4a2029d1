# closes its work directory to everybody
echo x > out.txt
chmod 000 out.txt /app
