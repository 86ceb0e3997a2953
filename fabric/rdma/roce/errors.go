package roce

import (
	"fmt"
)

// OpError says which verb failed on which object. errors.Is matches the verbs error.
type OpError struct {
	Op     string // the verb: "create QP", "post send", …
	Device string
	QPN    uint32 // 0 if no queue pair is concerned
	Err    error
}

func (e *OpError) Error() string {
	if e.QPN != 0 {
		return fmt.Sprintf("%s: QP %#06x: %s: %v", e.Device, e.QPN, e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Device, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

func (d *Device) fail(op string, err error) error {
	return &OpError{Op: op, Device: d.attr.Name, Err: err}
}

func (d *Device) failf(op string, kind error, format string, args ...any) error {
	return d.fail(op, errorf(kind, format, args...))
}

func (q *qp) failOp(op string, err error) error {
	return &OpError{Op: op, Device: q.d.attr.Name, QPN: q.num, Err: err}
}

func (q *qp) failf(op string, kind error, format string, args ...any) error {
	return q.failOp(op, errorf(kind, format, args...))
}

// errorf returns an error of the given kind with details.
func errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}
