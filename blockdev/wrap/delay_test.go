package wrap_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "delay:20ms-30ms:mem:1MiB")
		c := volumetest.NewClient(v)
		times := map[time.Duration]bool{}
		for range 20 {
			began := time.Now()
			if err := c.Write(make([]byte, 4096), 0, false); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 20*time.Millisecond || took > 30*time.Millisecond {
				t.Errorf("a write took %v", took)
			} else {
				times[took] = true
			}
		}
		if len(times) < 2 {
			t.Errorf("all took the same time: %v", times)
		}
		v.Close()
	})
}

// TestLongestDelay: the times may be as far apart as times can be.
func TestLongestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "delay:0s-"+time.Duration(math.MaxInt64).String()+":mem:1MiB")
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		v.Close()
	})
}

// TestDelayOfSlow: however long the volume below takes, the answer comes after its own.
func TestDelayOfSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frozen = 24 * time.Hour
		v := open(t, "delay:1ms:freeze:0s+24h:mem:1MiB")
		synctest.Wait()
		began := time.Now()
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != frozen+time.Millisecond {
			t.Errorf("a write took %v", took)
		}
		v.Close()
	})
}

// TestShortDelay: delays that are shorter than the runtime's timers are late last no longer than that.
func TestShortDelay(t *testing.T) {
	v := open(t, "delay:50us-200us:mem:1MiB")
	defer v.Close()
	c := volumetest.NewClient(v)
	least, shortest := 50*time.Microsecond, time.Hour
	for range 99 {
		began := time.Now()
		if err := c.Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		shortest = min(shortest, time.Since(began))
	}
	if shortest < least || shortest >= time.Millisecond {
		t.Errorf("the shortest of 99 writes took %v, want %v to %v", shortest, least, time.Millisecond)
	}
}
