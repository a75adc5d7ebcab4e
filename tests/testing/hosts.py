"""Several hosts on this machine: network namespaces with their own host names, connected by a switch. Needs root, ip, tc and iptables."""

import os
import pathlib
import shutil
import subprocess
import unittest


def addresses_of(number):
    """The names and addresses of `number` hosts."""
    return {f"node-{letter}": f"10.77.0.{place}" for place, letter in enumerate("abcdefgh"[:number], start=1)}


ADDRESSES = addresses_of(2)


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class Hosts:
    def __init__(self, case, addresses=ADDRESSES):
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "iptables", "tc"))):
            raise unittest.SkipTest("needs root and the packages iproute2 and iptables")
        self.spaces = {host: f"trainer-{os.getpid()}-{host}" for host in ("switch", *addresses)}
        self.cables = {host: f"t{os.getpid()}{host[-1]}" for host in addresses}
        for space in self.spaces.values():
            run("ip", "netns", "add", space)
            case.addCleanup(subprocess.run, ["ip", "netns", "del", space], capture_output=True)
        self.configure("switch", "link", "add", "switch", "type", "bridge")
        self.configure("switch", "link", "set", "switch", "up")
        for host, address in addresses.items():
            cable = self.cables[host]
            run("ip", "link", "add", cable, "netns", self.spaces[host], "type", "veth", "peer", "name", cable, "netns", self.spaces["switch"])
            self.configure("switch", "link", "set", cable, "master", "switch", "up")
            self.configure(host, "address", "add", f"{address}/24", "dev", cable)
            self.configure(host, "link", "set", "lo", "up")
            self.plug(host)

    def configure(self, host, *words):
        run("ip", "-n", self.spaces[host], *words)

    def plug(self, host):
        self.configure(host, "link", "set", self.cables[host], "up")

    def unplug(self, host):
        self.configure(host, "link", "set", self.cables[host], "down")

    def on(self, host):
        """The words before a command line that make it run on that host."""
        return ["ip", "netns", "exec", self.spaces[host], "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]

    def write_etc(self, case, host, files):
        """Makes programs on that host find these files in /etc. `files`: names and texts."""
        # `ip netns exec` mounts the files of this folder over those in /etc.
        folder = pathlib.Path("/etc/netns") / self.spaces[host]
        folder.mkdir(parents=True)
        case.addCleanup(shutil.rmtree, folder)
        for name, text in files.items():
            (folder / name).write_text(text)

    def silence_name_server(self, case, host):
        """From now on, programs on that host wait ten seconds for each look-up of a name or an address that /etc/hosts does not have."""
        self.write_etc(case, host, {"resolv.conf": "nameserver 127.0.0.1\n", "nsswitch.conf": "hosts: files dns\npasswd: files\ngroup: files\n"})
        run("ip", "netns", "exec", self.spaces[host], "iptables", "-A", "INPUT", "-p", "udp", "--dport", "53", "-j", "DROP")

    def slow_down(self, host, rate):
        run("tc", "-n", self.spaces[host], "qdisc", "add", "dev", self.cables[host], "root", "tbf", "rate", rate, "burst", "16kb", "latency",
            "2s")

    def lose(self, host, share):
        """Drops that share of the packets that the host receives."""
        run("ip", "netns", "exec", self.spaces[host], "iptables", "-A", "INPUT", "-i", self.cables[host], "-m", "statistic", "--mode", "random",
            "--probability", str(share), "-j", "DROP")
