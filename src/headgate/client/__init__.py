"""The Python client of a Headgate server: `headgate.connect(url)`.

It knows nothing but the server's address, its certificate and a session; it opens no store and no file of the server.
"""

from headgate.client.client import Client, Publisher, Received, connect

__all__ = ["Client", "Publisher", "Received", "connect"]
