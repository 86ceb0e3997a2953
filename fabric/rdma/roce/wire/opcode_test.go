package wire

import (
	"strings"
	"testing"
)

// TestOpcodeTable checks each line of the table against what its name says (IBTA table 38).
func TestOpcodeTable(t *testing.T) {
	known := 0
	for v := range 256 {
		o := Opcode(v)
		if o.Kind() == KindUnknown {
			if o.Headers() != 0 {
				t.Errorf("%v has properties", o)
			}
			continue
		}
		known++
		name := o.String()
		has := func(words ...string) bool {
			for _, w := range words {
				if strings.Contains(name, w) {
					return true
				}
			}
			return false
		}
		single := has("ONLY", "REQUEST", "ACKNOWLEDGE", "CMP_SWAP", "FETCH_ADD", "CNP", "SELECTIVE_ACK")
		check := func(what string, got, want bool) {
			if got != want {
				t.Errorf("%v: %s = %v, want %v", o, what, got, want)
			}
		}
		check("Starts", o.Starts(), has("FIRST") || single)
		check("Ends", o.Ends(), has("LAST") || single)
		check("IsRC", o.IsRC(), has("RC_"))
		check("IsUD", o.IsUD(), has("UD_"))
		response := has("RESPONSE", "ACKNOWLEDGE", "SELECTIVE_ACK")
		check("IsResponse", o.IsResponse(), response)
		for h, want := range map[Headers]bool{
			HasDETH:         has("UD_"),
			HasRETH:         has("WRITE_FIRST", "WRITE_ONLY", "READ_REQUEST"),
			HasAtomicETH:    has("CMP_SWAP", "FETCH_ADD"),
			HasAETH:         response && !has("MIDDLE"),
			HasAtomicAckETH: has("ATOMIC_ACKNOWLEDGE"),
			HasImmDt:        has("IMM"),
			HasIETH:         has("INV"),
			HasAckPSN:       strings.HasSuffix(name, "_ACK") && !response,
		} {
			check("header "+headerNames[h], o.Headers()&h != 0, want)
		}
		if n := BTHSize + o.Headers().Size(); n > MaxHeader {
			t.Errorf("%v: headers of %d bytes", o, n)
		}
	}
	if known != 34 {
		t.Errorf("%d opcodes are known, want 34", known)
	}
}

var headerNames = map[Headers]string{
	HasDETH: "DETH", HasRETH: "RETH", HasAtomicETH: "AtomicETH",
	HasAETH: "AETH", HasAtomicAckETH: "AtomicAckETH", HasImmDt: "ImmDt", HasIETH: "IETH", HasAckPSN: "AckPSN",
}

func TestReservedOpcodes(t *testing.T) {
	for _, o := range []Opcode{0x15, 0x18, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x40, 0x60, 0x66, 0x80, 0xff} {
		if o.Kind() != KindUnknown {
			t.Errorf("%v is known", o)
		}
	}
	if got := Opcode(0x15).String(); got != "opcode 0x15" {
		t.Errorf("name of a reserved opcode: %q", got)
	}
}

// TestWithAck: a request with an acknowledgement is the same request with one more header.
func TestWithAck(t *testing.T) {
	with := 0
	for v := range 256 {
		o := Opcode(v)
		a := o.WithAck()
		if o.Kind() == KindUnknown || a == o {
			continue
		}
		with++
		if a.Kind() != o.Kind() || a.IsResponse() || !o.Starts() || !o.Ends() || a.Starts() != o.Starts() || a.Ends() != o.Ends() ||
			a.Headers() != o.Headers()|HasAckPSN {
			t.Errorf("%v with an acknowledgement is %v", o, a)
		}
	}
	if with != 5 {
		t.Errorf("%d requests take acknowledgements along, want 5", with)
	}
}
