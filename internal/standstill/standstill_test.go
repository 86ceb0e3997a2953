package standstill

import "testing"

func TestUse(t *testing.T) {
	Enter()
	Enter()
	Leave()
	Leave()
	Blocks()
	Enter() // the timer that was stopped goes again
	Leave()
}
