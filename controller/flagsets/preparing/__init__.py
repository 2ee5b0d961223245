"""What is done to each document before it is merged: decryption, substitution, patches."""
