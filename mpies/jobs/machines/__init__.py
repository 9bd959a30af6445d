"""What a job may use: hosts, which of them answer, their slots, and the limits of this process."""
