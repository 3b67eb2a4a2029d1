# leaves modules in the work directory that Python or pytest may load
for name in sitecustomize usercustomize conftest pathlib json os site encodings; do
  echo 'import os; os._exit(0)' > $name.py
done
printf '[pytest]\naddopts = --co\n' > pytest.ini
echo 'import os; os._exit(0)' > x.pth
