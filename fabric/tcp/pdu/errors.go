package pdu

import "fmt"

// FieldError says which field of a PDU is wrong, in the terms of a terminate request.
type FieldError struct {
	FES   FES
	FEI   uint32 // offset of the field, or the received header digest; 0 if FES has none
	Field string // the field, with its PDU if that isn't obvious
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s (FEI %#x)", e.FES, e.Field, e.FEI)
}

// Invalid returns the FieldError for an invalid field at an offset from the start of its PDU.
func Invalid(off uint32, field string) *FieldError {
	return &FieldError{FESInvalidHeader, off, field}
}

// shortError returns the error for a PDU that was cut short.
func shortError(what string, have, want int) error {
	return fmt.Errorf("nvme/tcp %s: %d bytes where %d are needed", what, have, want)
}
