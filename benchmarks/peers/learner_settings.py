"""The settings of the peers in learner.py, each with its source.

SB3: RL Baselines3 Zoo (github.com/DLR-RM/rl-baselines3-zoo), hyperparams/ppo.yml at commit 208b6fdf and sac.yml at
c94924e5.  The zoo has them for earlier versions of the same environments (LunarLander-v2, Hopper-v4 or -v3, ...).  A
task that the zoo leaves out has the settings of its nearest relative, as the comments say.
EvoTorch: examples/scripts/rl_clipup.py at commit 13bdaf1d (github.com/nnaisense/evotorch), with its named settings
`lunarlander` for the tasks of classic control and the lander, and `walker` for robots.
pycma: its own defaults; the documentation asks for a first sigma of about a quarter of the range.  evosax documents no
settings for such tasks, so it has those that the recipe lunar_lander had at first: 128 members, sigma 0.1, rate 0.03.
"""

# Arguments of the environments.  The zoo's settings for Ant are those of Ant-v4, which shows no contact forces.
ENVIRONMENTS = {"Ant-v5": {"include_cfrc_ext_in_observation": False}}


def linear(first):
    """A schedule of Stable-Baselines3 that falls from `first` to 0 (the zoo's `lin_`)."""
    return lambda remaining: remaining * first


def relu_network(**more):
    """The network that the zoo's settings for MuJoCo share.  more: further policy_kwargs."""
    import torch

    sizes = {"pi": [256, 256], "vf": [256, 256]}
    return {"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": sizes, **more}


LANDER_PPO = {
    "n_envs": 16,
    "n_timesteps": 1_000_000,
    "n_steps": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "n_epochs": 4,
    "ent_coef": 0.01,
}
MUJOCO_SAC = {"n_timesteps": 1_000_000, "learning_starts": 10_000}


class _Lazy(dict):
    """Settings that need PyTorch are made when they are asked for."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return value() if callable(value) else value


SB3 = {
    "ppo": _Lazy(
        {
            "CartPole-v1": {
                "n_envs": 8,
                "n_timesteps": 100_000,
                "n_steps": 32,
                "batch_size": 256,
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "n_epochs": 20,
                "ent_coef": 0.0,
                "learning_rate": linear(0.001),
                "clip_range": linear(0.2),
            },
            "Pendulum-v1": {
                "n_envs": 4,
                "n_timesteps": 100_000,
                "n_steps": 1024,
                "gae_lambda": 0.95,
                "gamma": 0.9,
                "n_epochs": 10,
                "ent_coef": 0.0,
                "learning_rate": 1e-3,
                "clip_range": 0.2,
                "use_sde": True,
                "sde_sample_freq": 4,
            },
            "LunarLander-v3": LANDER_PPO,
            "LunarLanderContinuous-v3": LANDER_PPO,
            "BipedalWalker-v3": {
                "normalize": True,
                "n_envs": 32,
                "n_timesteps": 5_000_000,
                "n_steps": 2048,
                "batch_size": 64,
                "gae_lambda": 0.95,
                "gamma": 0.999,
                "n_epochs": 10,
                "ent_coef": 0.0,
                "learning_rate": 3e-4,
                "clip_range": 0.18,
            },
            "Swimmer-v5": {
                "normalize": True,
                "n_envs": 4,
                "n_timesteps": 1_000_000,
                "gamma": 0.9999,
                "n_steps": 1024,
                "batch_size": 256,
                "learning_rate": 6e-4,
                "gae_lambda": 0.98,
            },
            "Hopper-v5": lambda: {
                "normalize": True,
                "n_envs": 1,
                "n_timesteps": 1_000_000,
                "batch_size": 32,
                "n_steps": 512,
                "gamma": 0.999,
                "learning_rate": 9.80828e-05,
                "ent_coef": 0.00229519,
                "clip_range": 0.2,
                "n_epochs": 5,
                "gae_lambda": 0.99,
                "max_grad_norm": 0.7,
                "vf_coef": 0.835671,
                "policy_kwargs": relu_network(),
            },
            "HalfCheetah-v5": lambda: {
                "normalize": True,
                "n_envs": 1,
                "n_timesteps": 1_000_000,
                "batch_size": 64,
                "n_steps": 512,
                "gamma": 0.98,
                "learning_rate": 2.0633e-05,
                "ent_coef": 0.000401762,
                "clip_range": 0.1,
                "n_epochs": 20,
                "gae_lambda": 0.92,
                "max_grad_norm": 0.8,
                "vf_coef": 0.58096,
                "policy_kwargs": relu_network(),
            },
            "Walker2d-v5": {
                "normalize": True,
                "n_envs": 1,
                "n_timesteps": 1_000_000,
                "batch_size": 32,
                "n_steps": 512,
                "gamma": 0.99,
                "learning_rate": 5.05041e-05,
                "ent_coef": 0.000585045,
                "clip_range": 0.1,
                "n_epochs": 20,
                "gae_lambda": 0.95,
                "max_grad_norm": 1,
                "vf_coef": 0.871923,
            },
            "Ant-v5": {"normalize": True, "n_envs": 1, "n_timesteps": 1_000_000},
            "Humanoid-v5": lambda: {
                "normalize": True,
                "n_envs": 1,
                "n_timesteps": 10_000_000,
                "batch_size": 256,
                "n_steps": 512,
                "gamma": 0.95,
                "learning_rate": 3.56987e-05,
                "ent_coef": 0.00238306,
                "clip_range": 0.3,
                "n_epochs": 5,
                "gae_lambda": 0.9,
                "max_grad_norm": 2,
                "vf_coef": 0.431892,
                "policy_kwargs": relu_network(),
            },
        }
    ),
    "sac": {
        "Pendulum-v1": {"n_timesteps": 20_000, "learning_rate": 1e-3},
        "LunarLanderContinuous-v3": {
            "n_timesteps": 500_000,
            "batch_size": 256,
            "learning_rate": linear(7.3e-4),
            "ent_coef": "auto",
            "gamma": 0.99,
            "tau": 0.01,
            "train_freq": 1,
            "gradient_steps": 1,
            "learning_starts": 10_000,
            "policy_kwargs": {"net_arch": [400, 300]},
        },
        "BipedalWalker-v3": {
            "n_timesteps": 500_000,
            "learning_rate": 7.3e-4,
            "buffer_size": 300_000,
            "batch_size": 256,
            "ent_coef": "auto",
            "gamma": 0.98,
            "tau": 0.02,
            "train_freq": 64,
            "gradient_steps": 64,
            "learning_starts": 10_000,
            "use_sde": True,
            "policy_kwargs": {"log_std_init": -3, "net_arch": [400, 300]},
        },
        "Swimmer-v5": MUJOCO_SAC | {"gamma": 0.9999},
        "Hopper-v5": MUJOCO_SAC,
        "HalfCheetah-v5": MUJOCO_SAC,
        "Walker2d-v5": MUJOCO_SAC,
        "Ant-v5": MUJOCO_SAC,
        "Humanoid-v5": MUJOCO_SAC | {"n_timesteps": 2_000_000},
    },
}


def evotorch_settings(environment):
    """Arguments for GymNE and for PGPE."""
    speed, population, problem, search = 0.015, 100, {"observation_normalization": True}, {"popsize_max": 800}
    problem["network"] = "Linear(obs_length, act_length)"
    if environment == "Hopper-v5":
        problem["decrease_rewards_by"] = 1.0  # the bonus for surviving
    search["num_interactions"] = int(0.75 * 1000 * population)
    if environment in ("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "LunarLanderContinuous-v3"):
        speed, population, search = 0.3, 200, {}
        problem = {"observation_normalization": False, "network": "Linear(obs_length, act_length, False)"}
    search |= {"popsize": population, "center_learning_rate": 0.75 * speed, "radius_init": 15 * speed}
    return problem, search | {"optimizer_config": {"max_speed": speed, "momentum": 0.9}}


PYCMA = {"sigma": 0.5}  # a linear policy, which is what a full covariance is for
EVOSAX = {"population": 128, "sigma": 0.1, "learning_rate": 0.03, "hidden": [32, 32]}
