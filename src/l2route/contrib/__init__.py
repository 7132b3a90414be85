"""What other systems take from l2route, and what needs packages of its own."""
