// Package oracle is the truth about every operator: what the right numbers are, written as plain formulas.
//
// Arithmetic is float64 on the stored inputs; nothing is rounded in between. Readable beats fast. A backend's kernel is
// held to the operator of the same stem here, on the same fixtures, within a bound derived from the operator.
//
// Vectors are slices, matrices are row-major slices or, for weights, a [Matrix]. Functions that write take their
// destination first. Lengths must agree; a mismatch is a bug in the caller and panics by an index out of range.
// State that an operator carries from row to row is passed in and out by the caller.
package oracle
