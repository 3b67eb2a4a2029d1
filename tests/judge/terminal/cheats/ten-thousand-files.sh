# leaves 10,000 files in its work directory and beside its logs
mkdir many /logs/agent/many
cd many
for n in {1..10000}; do : > f$n; done
cd /logs/agent/many
for n in {1..3000}; do : > f$n; done
