"""How far a right sum may lie from the fp64 one, over the sum of magnitudes, in whatever order it is added up.

With unit roundoff u = 2**-24, an order is a tree whose n - 1 nodes each round a partial sum P by at most u |P|.

In every case the error is at most (n - 1) u sum|x| (Lange & Rump, "Error estimates for the summation of real numbers
with application to floating-point summation", BIT Numer. Math. 57(3), 2017). Beyond 2**24 numbers that allows any
result, so sums are held to the bounds below as well. They take roundings as independent of one another, uniform, and
as likely up as down, and the order as one that does not follow from the values: the error is then normal with
variance u^2 / 3 * sum P^2. The sum of the sizes of all subtrees is largest where numbers are added one by one: that
order errs most.

Inputs of one sign: P_k = k E|x|, the variance is (u n E|x|)^2 n / 9, and t standard deviations are t / 3 sqrt(n) u
over n E|x|. A normal variable exceeds t = sqrt(2 ln(2 / FALSE_ALARM)) of them with less than that chance. A single
fp32 sum that has stopped growing, at 2**25 numbers of [0, 1), errs by far more: its roundings all go down.

Inputs of both signs: P is a random walk of steps with root mean square s, and sum P^2 = s^2 n^2 I, where I is the
integral of a squared Brownian motion over [0, 1]. P(I > x) falls as exp(-pi^2 x / 8) (Cameron & Martin 1944), so the
error exceeds y u s n / sqrt(3) with a chance of about exp(-pi y / 2), the most likely I being 2 y / pi. That is
FALSE_ALARM at y = 2 / pi * ln(2 / FALSE_ALARM), and over n E|x| the bound is y / sqrt(3) * s / E|x| u whatever n is:
12 u for uniform inputs, 56 u for those over many binades.

Numbers of bf16 are added up in fp32, so that the bounds are the same. The first additions are then exact, and those
over many binades reach over 48 of them in the place of 64, which makes s / E|x| smaller.

Integers are added up exactly, and their sum must be exact.

What a launch may leave out unseen: m numbers that are uniform in [-1, 1) add up to sqrt(m / 3), and 12 u sum|x| is n
/ 2**21.4. At n = 2**28 that is 96. A kernel that leaves out every 64th number errs by 1200 there, and a launch of it
passes by luck once in 15 times, 13 launches once in 10**15. At 2**24 each launch passes once in 60.
"""

import math

FALSE_ALARM = 1e-12
"""The chance that a right sum is refused, in one launch."""
_ROUNDOFF = 2.0**-24
_SPREAD = {"uniform": math.sqrt(4 / 3), "wide": 16 / 3}
"""Root mean square over mean magnitude, s / E|x|: of uniform numbers, and of those times 2**-32 to 2**31."""


def error_bound(count: int, inputs: str) -> float:
    """The largest error of a right sum of so many numbers of a kind, over the sum of their magnitudes."""
    if inputs == "integers":
        return 0.0
    chance = math.log(2 / FALSE_ALARM)
    units = math.sqrt(2 * chance * count) / 3
    if inputs in _SPREAD:
        units = 2 / math.pi * chance / math.sqrt(3) * _SPREAD[inputs]
    return min(count - 1, units) * _ROUNDOFF
