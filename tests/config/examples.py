"""The smallest configs: an environment, and a function of parameters."""

CARTPOLE = "environment: {id: CartPole-v1}\n"
SPHERE = "environment: {id: 'function:sphere', dimension: 5}\n"
