"""Datagrams between peers: the socket and its queue, the codec, sealed links, multicast."""
