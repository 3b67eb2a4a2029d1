# removes its work directory
cd /
rm -rf /app
