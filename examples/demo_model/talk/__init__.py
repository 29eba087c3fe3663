"""What is said: personas, questions and answers, and how a call is put together from them."""
