package nvme

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestPagesAsBinary: pages are parsed and appended as encoding/binary would.
func TestPagesAsBinary(t *testing.T) {
	for _, p := range []any{
		new(IdentifyController), new(IdentifyControllerNVM), new(CommandSets), new(IdentifyNamespace), new(IdentifyNamespaceIndependent),
		new(NamespaceSpec), new(DiscoveryHeader), new(DiscoveryEntry), new(EffectsLog), new(ErrorEntry), new(FeatureEffectsLog),
		new(FirmwareLog), new(PersistentLogHeader), new(ReservationNotification), new(SanitizeLog), new(SMARTLog), new(SupportedLogs),
		new(PowerOnEvent), new(TimestampChangeEvent), new(ChangeNamespaceEvent), new(FormatStartEvent), new(FormatEndEvent), new(SanitizeStartEvent), new(SanitizeEndEvent),
	} {
		b := make([]byte, binary.Size(p)+1)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		want := reflect.New(reflect.TypeOf(p).Elem()).Interface()
		if _, err := binary.Decode(b, binary.LittleEndian, want); err != nil {
			t.Fatal(err)
		}
		if err := parsePage(b, p, len(b)-1, "page"); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%T: %v\n%+v, want\n%+v", p, err, p, want)
		}
		page, err := binary.Append([]byte("prefix"), binary.LittleEndian, want)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendPage([]byte("prefix"), p); !bytes.Equal(got, page) {
			t.Errorf("%T:\n% x, want\n% x", p, got, page)
		}
	}
}
