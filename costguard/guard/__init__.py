"""The guard's judgement: from facts to states of work, verdicts, a plan, and intents. Pure, like all of core."""
