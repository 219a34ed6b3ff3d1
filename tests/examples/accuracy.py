"""A classifier learns: accuracy.py LIMIT PROGRAM ARGUMENTS... The last line of the program's output is its result."""
import json
import subprocess
import sys

limit = float(sys.argv[1])
output = subprocess.run(sys.argv[2:], check=True, stdout=subprocess.PIPE, text=True).stdout
accuracy = json.loads(output.splitlines()[-1])["accuracy"]
print(f"accuracy {accuracy:.4f}, at least {limit}")
sys.exit(accuracy < limit)
