"""Protocol between parties: keys, sealed messages, questions and answers, noise and budgets."""
