"""The compatibility matrix: every stock client against a fresh broker, case by case."""
