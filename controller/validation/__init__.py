"""What is wrong with an object of our kinds by itself, for `flagstaff lint` and for admission alike."""
