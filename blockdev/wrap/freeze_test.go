package wrap_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "freeze:10s+5s:mem:1MiB")
		c := volumetest.NewClient(v)
		began := time.Now()
		read := func() {
			t.Helper()
			if err := c.Read(make([]byte, 4096), 0); err != nil {
				t.Fatal(err)
			}
		}
		read()
		time.Sleep(9 * time.Second)
		read()
		if d := time.Since(began); d != 9*time.Second {
			t.Errorf("a read waited: %v", d)
		}
		time.Sleep(1500 * time.Millisecond)
		read()
		if d := time.Since(began); d != 15*time.Second {
			t.Errorf("the frozen read ended after %v, want 15s", d)
		}
		f := wrap.Find[*wrap.Freezer](v)[0]
		f.Freeze()
		answered := make(chan error, 1)
		go func() { answered <- c.Write(make([]byte, 4096), 0, true) }()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Fatalf("a frozen volume answered: %v", err)
		default:
		}
		if err := v.Close(); err != nil { // which must not hang
			t.Error(err)
		}
		if err := <-answered; err != nil {
			t.Errorf("the write that waited: %v", err)
		}
	})
}
