"""What can put a response into a category: each module holds one classifier."""
