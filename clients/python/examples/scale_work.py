"""A pool of workers that filters images, with metrics of its own: Dragon's interface.

    python scale_work.py --num_workers 4 --iterations 10
    pegel top            shows iteration_time, images_total and filter_seconds while it runs
"""

import argparse
import itertools
import multiprocessing
import time

import numpy as np

import pegel
from pegel import Telemetry

images_total = pegel.counter("images_total", help="Images that were filtered.", pid=True)


def get_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--num_workers", type=int, default=4, help="number of workers")
    parser.add_argument("--iterations", type=int, default=10, help="number of iterations")
    parser.add_argument("--images", type=int, default=32, help="images per iteration")
    parser.add_argument("--size", type=int, default=256, help="width and height of an image")
    parser.add_argument("--work_time", type=float, default=0.0, help="least seconds of work per image")
    parser.add_argument("--method", default="spawn", choices=multiprocessing.get_all_start_methods())
    return parser.parse_args()


@pegel.timed("filter_seconds")
def filter_image(args):
    image, kernel, work_time = args
    start = time.perf_counter()
    while True:
        shape = [sum(pair) - 1 for pair in zip(image.shape, kernel.shape)]
        spectrum = np.fft.rfft2(image, shape) * np.fft.rfft2(kernel, shape)
        result = np.fft.irfft2(spectrum, shape)[::5, ::5]
        if time.perf_counter() - start >= work_time:
            break
    images_total.add(1)
    return float(np.abs(result).max())


def main():
    args = get_args()
    # One for each process that adds data.
    telemetry = Telemetry()
    context = multiprocessing.get_context(args.method)
    random = np.random.default_rng(1)
    images = [random.normal(size=(args.size, args.size)) for _ in range(args.images)]
    kernels = [random.normal(size=(4, 4)) for _ in range(args.images)]

    start = time.perf_counter()
    with context.Pool(args.num_workers) as pool:
        telemetry.add_data("pool_start_time", time.perf_counter() - start)
        times = []
        for iteration in range(args.iterations):
            with pegel.phase(f"iteration {iteration}"):
                start = time.perf_counter()
                work = zip(images, kernels, itertools.repeat(args.work_time))
                largest = max(pool.map(filter_image, work))
                times.append(time.perf_counter() - start)
            telemetry.add_data("iteration", iteration, telemetry_level=3)
            telemetry.add_data("iteration_time", times[-1])
            telemetry.add_data("largest_value", largest)
        pool.close()
        pool.join()
    print(f"{args.iterations} iterations, {np.mean(times):.3f} s each, spread {np.std(times):.3f} s")
    telemetry.finalize()


if __name__ == "__main__":
    main()
