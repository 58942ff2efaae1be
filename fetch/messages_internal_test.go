package fetch

import (
	"testing"

	"fetchd/classify"
)

func TestEveryClassHasAMessage(t *testing.T) {
	t.Parallel()
	for _, class := range classify.Classes() {
		if classMessage(class, "") == "" {
			t.Errorf("class %s has no message", class)
		}
	}
}
