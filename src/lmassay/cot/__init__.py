"""The cot suite: nine objective tasks on chains of thought, and the baselines any new method must beat."""
