"""What can answer: each module opens one kind of model."""
