"""The server: one trusted process that holds the store, the keys, the engine and the ingress log (paper 000, section
2).

Everyone else is a client over HTTPS. `app` has the operations, `guard` what every request passes first, `dispatch` what
is decided about results when they are sent, `serve` the process.
"""
