package multipath

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestCloseForgets: Close returns how the controllers that it closes shut down, not how one did that the path gave
// up long before.
func TestCloseForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		memory, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		slow := wrap.NewFreezer(memory)
		defer slow.Close()
		if _, err := r.tgt.Subsystem(testNQN).AddNamespace(target.NamespaceConfig{Volume: slow, ANAGroup: 2}); err != nil {
			t.Fatal(err)
		}
		s, _ := r.connect()
		n, err := s.Namespace(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		slow.Freeze()
		ended := make(chan error, 1)
		go func() { ended <- n.Flush(t.Context()) }()
		synctest.Wait()
		if err := r.tgt.SetANAState(1, 1, nvme.ANAChange); err != nil { // lasts longer than ANATT
			t.Fatal(err)
		}
		r.links[0].restore(nil) // for later connections
		time.Sleep(20 * time.Second)
		slow.Thaw()
		time.Sleep(time.Second)
		if st := s.Paths()[0]; st.State != Reconnecting {
			t.Fatalf("the path is %v", st.State)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("a flush ended well that was cut short")
		}
		if err := r.tgt.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.volume.Close()
	})
}
