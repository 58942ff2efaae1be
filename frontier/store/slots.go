package store

import (
	"crypto/sha256"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
)

// slotCount is the number of slots of a frontier in many databases. A slot is what moves between them.
const slotCount = 1 << 10

// hostSlot returns the slot of a host: a hash of its registrable domain. It must give the same for ever, because it
// says where the rows of the host are. So it does not use the public suffix list, which changes every month, but a
// few labels that stand below the domains of countries. Hosts with the same registrable domain have the same slot, as
// long as a list does not let anyone register below it that these labels do not name. frontier_slot is the same in SQL.
func hostSlot(host string) int {
	name := port.ReplaceAllString(host, "")
	if !numeric(name) && !strings.HasPrefix(name, "[") {
		labels := strings.Split(strings.TrimRight(name, "."), ".")
		keep, n := 2, len(labels)
		if n > 2 && len(labels[n-1]) == 2 && slices.Contains(belowCountries, labels[n-2]) {
			keep = 3
		}
		name = strings.Join(labels[max(0, n-keep):], ".")
	}
	hash := sha256.Sum256([]byte(name))
	return int(binary.BigEndian.Uint16(hash[:2]) >> 6)
}

var port = regexp.MustCompile(`:[0-9]*$`)

var belowCountries = []string{"ac", "co", "com", "edu", "gob", "gov", "govt", "go", "mil", "ne", "net", "nom", "or", "org", "plc", "sch"}

func numeric(name string) bool { return strings.Trim(name, "0123456789.") == "" }

// fillSlots gives each slot to one of n databases, by rendezvous hashing: another one takes the same number of slots
// from each.
func fillSlots(n int) []int {
	slots := make([]int, slotCount)
	for slot := range slots {
		var best [sha256.Size]byte
		for number := range n {
			hash := sha256.Sum256(binary.BigEndian.AppendUint32(nil, uint32(slot)<<10|uint32(number)))
			if number == 0 || slices.Compare(hash[:], best[:]) > 0 {
				best, slots[slot] = hash, number
			}
		}
	}
	return slots
}
