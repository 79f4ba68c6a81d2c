-- rule: events-lost
-- severity: warning
-- holds: the recorder kept every row
SELECT run, 'run' AS table_name, 'run ' || label AS key, events_lost || ' rows lost' AS value
FROM run
WHERE events_lost > 0

-- rule: not-placed
-- severity: warning
-- holds: importer and recorder could place everything
SELECT run, 'import_note' AS table_name, code AS key, concat_ws(' times: ', "count", sample) AS value
FROM import_note
WHERE level <> 'info'
