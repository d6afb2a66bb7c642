"""Ports for programs that a test starts."""
import socket


def free_port():
    """At which nobody listens. Until this process ends it stays bound, without a listener, so that nobody who takes any port gets
    it, and whoever connects is refused. A program that sets SO_REUSEADDR, as thinwire does, listens beside that."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("", 0))
    port = probe.getsockname()[1]
    probe.detach()
    return port
