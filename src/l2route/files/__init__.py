"""Files: formats, atomic replacement, index directories, hashes and downloads."""
