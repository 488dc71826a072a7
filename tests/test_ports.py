"""Ports for servers in tests are free and no outgoing connection gets them."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.ports import free_ports


def test_they_differ_and_lie_below_the_ephemeral_range():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < lowest


def test_one_in_use_is_not_given(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_ports(1)[0]))
        used = taken.getsockname()[1]
        monkeypatch.setattr("tests.ports._RANGE", (used, free_ports(1)[0]))
        assert used not in free_ports(1)
