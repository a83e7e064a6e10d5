"""A training loop: loss and accuracy per step, time per epoch, checkpoints as marks.

    python training.py --epochs 3
"""

import argparse

import numpy as np

import pegel


def data(random, rows):
    """Returns points of two clouds, and to which cloud each belongs."""
    labels = random.integers(0, 2, rows)
    points = random.normal(size=(rows, 2)) + 1.5 * labels[:, None]
    return points, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    steps = pegel.counter("train_steps_total", help="Steps of the optimiser.")
    loss_now = pegel.gauge("train_loss", help="Loss of the last batch.")
    accuracy = pegel.point("train_accuracy", help="Accuracy at the end of an epoch.")
    gradients = pegel.histogram("train_gradient_norm", help="Norms of the gradients.")

    random = np.random.default_rng(1)
    weights, bias = np.zeros(2), 0.0
    with pegel.phase("training"):
        for epoch in range(args.epochs):
            with pegel.timed("train_epoch_seconds"):
                for _ in range(args.steps):
                    points, labels = data(random, 64)
                    guess = 1 / (1 + np.exp(-(points @ weights + bias)))
                    error = guess - labels
                    gradient = points.T @ error / len(labels)
                    weights -= 0.5 * gradient
                    bias -= 0.5 * error.mean()
                    steps.add(1)
                    gradients.record(np.linalg.norm(gradient))
                    likelihood = np.where(labels, guess, 1 - guess)
                    loss_now.set(-np.log(np.maximum(likelihood, 1e-12)).mean())
            points, labels = data(random, 1000)
            score = ((points @ weights + bias > 0) == labels).mean()
            accuracy.add(score)
            pegel.mark(f"checkpoint {epoch}", labels={"accuracy": f"{score:.3f}"})
    print(f"accuracy {score:.2f} after {args.epochs * args.steps} steps")


if __name__ == "__main__":
    main()
