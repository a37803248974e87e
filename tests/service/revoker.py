"""Another process with its own Headgate: for each line (store, token, statement, as JSON) it runs the statement."""

import json
import sys

from conftest import KEY, cheap_passwords

from headgate.service import Headgate

for line in sys.stdin:
    url, token, statement = json.loads(line)
    headgate = Headgate(url, KEY, passwords=cheap_passwords(), create=False)
    try:
        if statement == "LOGOUT":
            headgate.logout(token)
        else:
            headgate.execute(token, statement)
    finally:
        headgate.close()
    print("done", flush=True)
