"""Train a speaker and a listener, in about three minutes; the run's folder then holds policy, curve and film."""

import counterpoint

if __name__ == "__main__":
    run = counterpoint.train(preset="demo", exp_name="example")
    print(f"learning curve: {run.curve_path}")
