"""Peers on real sockets: datagrams between peers, TCP for clients, a file for what must outlive a crash."""
