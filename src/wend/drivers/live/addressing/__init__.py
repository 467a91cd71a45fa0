"""Where other peers are: the address book, given links, and how peers that no file names join."""
