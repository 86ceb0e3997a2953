package fio

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// evaluate returns the value of an arithmetic expression, as fio allows it in parentheses: +, -, *, / and % on
// integers, ^ for powers, and numbers as literal reads them.
func evaluate(text string, literal func(string) (int64, error)) (int64, error) {
	e := &expression{rest: text, literal: literal}
	v, err := e.sum()
	switch {
	case err != nil:
	case e.rest != "":
		err = fmt.Errorf("%q is no part of an expression", e.rest)
	case !v.IsInt64():
		err = errLarge
	}
	if err != nil {
		return 0, fmt.Errorf("want an expression, as (4*1024): %w", err)
	}
	return v.Int64(), nil
}

var (
	errLarge = errors.New("the value is too large")
	errZero  = errors.New("a division by zero")
)

// Bounds of the calculation: values stay small whatever the expression.
const (
	maxBits    = 1 << 10 // of a value
	maxNesting = 100     // of parentheses
)

// expression is an expression being parsed from the front.
type expression struct {
	rest    string
	literal func(string) (int64, error)
	nesting int
}

// operator consumes one of the operators in set if it comes next, or returns 0.
func (e *expression) operator(set string) byte {
	e.rest = strings.TrimLeft(e.rest, " \t")
	if e.rest == "" || !strings.Contains(set, e.rest[:1]) {
		return 0
	}
	op := e.rest[0]
	e.rest = e.rest[1:]
	return op
}

func (e *expression) sum() (*big.Int, error) { return e.chain("+-", e.product) }

func (e *expression) product() (*big.Int, error) { return e.chain("*/%", e.power) }

// chain parses operands separated by operators of set, which apply from left to right.
func (e *expression) chain(set string, operand func() (*big.Int, error)) (*big.Int, error) {
	v, err := operand()
	for err == nil {
		op := e.operator(set)
		if op == 0 {
			return v, nil
		}
		var w *big.Int
		if w, err = operand(); err == nil {
			err = apply(op, v, w)
		}
	}
	return nil, err
}

// power parses an operand and its exponent; ^ is right-associative.
func (e *expression) power() (*big.Int, error) {
	v, err := e.operand()
	if err != nil || e.operator("^") == 0 {
		return v, err
	}
	w, err := e.power()
	if err != nil {
		return nil, err
	}
	return v, apply('^', v, w)
}

// apply sets v to the result of op on v and w.
func apply(op byte, v, w *big.Int) error {
	switch op {
	case '+':
		v.Add(v, w)
	case '-':
		v.Sub(v, w)
	case '*':
		v.Mul(v, w)
	case '^':
		if w.Sign() < 0 || v.BitLen() > 1 && (!w.IsInt64() || w.Int64() > maxBits/int64(v.BitLen())) {
			return errLarge
		}
		v.Exp(v, w, nil)
	default:
		if w.Sign() == 0 {
			return errZero
		}
		if op == '/' {
			v.Quo(v, w)
		} else {
			v.Rem(v, w)
		}
	}
	if v.BitLen() > maxBits {
		return errLarge
	}
	return nil
}

// operand parses a number or an expression in parentheses, optionally with a sign.
func (e *expression) operand() (*big.Int, error) {
	if e.nesting++; e.nesting > maxNesting {
		return nil, errors.New("too many parentheses")
	}
	defer func() { e.nesting-- }()
	switch e.operator("-(") {
	case '-':
		v, err := e.operand()
		if err == nil {
			v.Neg(v)
		}
		return v, err
	case '(':
		v, err := e.sum()
		if err == nil && e.operator(")") == 0 {
			err = errors.New("a parenthesis is not closed")
		}
		return v, err
	}
	end := strings.IndexAny(e.rest, " \t+-*/%^()")
	if end < 0 {
		end = len(e.rest)
	}
	word := e.rest[:end]
	e.rest = e.rest[end:]
	n, err := e.literal(word)
	return big.NewInt(n), err
}

// unsigned returns the value of an expression that must not be negative.
func unsigned(text string, literal func(string) (int64, error)) (int64, error) {
	n, err := evaluate(text, literal)
	if n < 0 { // 0 with an error
		err = fmt.Errorf("%s is %d: want at least 0", text, n)
	}
	return n, err
}

// expressed reports whether a value is an expression rather than a number.
func expressed(v string) bool { return strings.HasPrefix(v, "(") }
