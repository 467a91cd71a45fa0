"""Where other peers are: the address book, given links, and how peers join that no file names."""
