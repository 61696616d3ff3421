"""The toolbox of those who write tuners.

learning    results and pending trials as points and values, for tuners that learn from them
positions   where a value lies between 0 and 1, for tuners that work in a unit cube
cube        points as rows of numbers, for tuners with a model; needs numpy
prior       the defaults of parameters, and values near to them
constrained_tuner  constraints between parameters and on results, for every tuner
result_constraints  limits of the numbers in results
objectives  several objectives: their directions, and the trials that no other one beats
class_args  checks of the arguments that users give to tuners and assessors
"""
