"""Episodes of members on one rank.

A rollout is one episode of one member, known by its number: member * episodes + episode.  A RolloutBatch says what is
to be played, a RolloutQueue hands it out among the ranks and keeps the results of this one, and a player plays it.
Which rank plays a rollout, when and beside which others changes no bit of its result.
"""
