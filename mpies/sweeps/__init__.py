"""Many runs with settings that vary: what varies, the folder of a sweep, its queue of trials and its table."""
