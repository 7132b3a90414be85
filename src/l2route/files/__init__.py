"""Files: checked when read, replaced atomically, hashed, downloaded."""
